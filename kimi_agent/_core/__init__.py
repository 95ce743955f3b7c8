"""What the package decides, as plain functions and small machines that never wait."""
