"""The literal tokens of the text formats."""

from __future__ import annotations

import pytest

from kimi_agent.dialects.k2_format import LONGEST_K2_MARKER, K2Marker


@pytest.mark.parametrize("marker", K2Marker)
def test_a_marker_begins_with_the_only_bracket_it_holds(marker: K2Marker) -> None:
    assert marker.startswith("<")
    assert marker.count("<") == 1
    assert marker.endswith(">")
    assert len(marker) <= LONGEST_K2_MARKER


def test_no_marker_is_the_beginning_of_another() -> None:
    assert not [
        (one, other) for one in K2Marker for other in K2Marker if one != other and other.startswith(one)
    ]
