"""Checks a deployment as a person would by hand, and says what to do about what is wrong.

`examine` carries out the checks; `kimi-agent doctor` prints what it finds.
"""

from kimi_agent.doctor.case import Asked
from kimi_agent.doctor.examination import CHECKS, examine
from kimi_agent.doctor.finding import Finding, Report

__all__ = ["CHECKS", "Asked", "Finding", "Report", "examine"]
