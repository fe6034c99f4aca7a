"""What stands in the way where a line is not met, by its measure; shown only while that is so."""

from __future__ import annotations

NOTES: dict[str, str] = {
    "canonical hash of 1 KB": (
        "sorted keys and SHA-256 alone take 1.5 to 1.7 times orjson's plain dump. The rest is the look at every value, "
        "in Python, that keeps NaN, whole doubles and foreign types from getting a text that RFC 8785 does not give "
        "them. It would take native code."
    ),
}
