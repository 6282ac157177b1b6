"""Text that is no valid Unicode, and characters that mean something to HTML and CSV."""

CELL = r"""
def attack(x):
    return "\ud800\0<script>alert(1)</script>" if len(x) == 3 else {"=cmd|'/c calc'!A1": 1, "\udfff": None}
"""
STATUS = "ran"
