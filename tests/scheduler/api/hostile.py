"""Hostile values, the same ones in every run."""

from __future__ import annotations

_SHELL = (
    "; rm -rf /", "&& reboot", "| cat /etc/passwd", "$(id)", "`id`", "${HOME}", "$HOME", "> /tmp/x",
    "< /dev/zero", "& sleep 9", "\n id", "\r\nid", "*", "?", "[a-z]", "{a,b}", "~", "~root", "!!",
    "!id", "#", "'", '"', "\\", "'; id; '", '"; id; "', "' || '1'='1", "\\\n", "\t", " ", "  a  b ",
    "$IFS", "${IFS}id", "$(< /etc/passwd)", "<(id)", "a=b", "-", "--", "-rf", "--help", "-c id",
    "--config=/etc/x", "\x1b[2J", "\x1b]0;t\x07", "\x07", "\x7f", "%0a", "$((1+1))", "a;b", "a|b",
    "eval id", "exec id", "() { :;}; id", "$'\\x41'", "\\$(id)", "`", "$(", "${", "`id", "'\"'\"'",
)  # fmt: skip
_PATHS = (
    "..", ".", "../", "../../etc/passwd", "/etc/passwd", "/", "//", "a/b", "a/../../b", "./a",
    "a/.",
    "..\\..\\x", "C:\\Windows", "\\\\host\\share", "%2e%2e%2f", "%2e%2e/", "..%2f", "..%252f",
    "%c0%ae%c0%ae/", "....//", "..;/", "file:///etc/passwd", "gs://bucket/x", "http://x/",
    "/proc/self/environ", "/dev/null", "a\0/../b", ".ssh", ".git/config", "a/b/c/d", "%00", "CON",
    "%~abc", "nul", "a:b", "~/x", "output.log", "jobs", "logs", "checkpoints", "artifacts", "work",
)  # fmt: skip
_TEXT = (
    "\0", "a\0b", "\x01", "\x1f", "\x80", "\x85", "\u2028", "\u2029", "\u202e", "\u202eabc",
    "\u2066",
    "\u2069x", "\u200b", "\ufeff", "\u00ad", "\u0000x", "é", "e\u0301", "ﬁ", "İ", "ı", "ß",
    "Ａ", "٣",
    "１２", "日本語", "😀", "👩\u200d🔬", "\ud800", "\udfff", "a\ud83d", "\U000e0041", "а", "раура",
    "ⅷ", "½", "\u3000", "\u00a0", "\u180e", "\ufffd", "\uffff", "\u034f", "\u115f", "\u1160",
    "Z\u0351\u036b\u0343", "\u061c", "\u200e", "\u200f", "𝕒", "K",
)  # fmt: skip
_FORMATS = (
    "%s", "%n", "%x%x%x", "%(a)s", "{}", "{0}", "{0.__class__}", "{job.spec}", "${jndi:ldap://x}",
    "{{7*7}}", "<%= 7 %>", "<script>alert(1)</script>", "<img src=x onerror=a>", "]]>", "<!--",
    "&lt;", "&#0;", "' OR 1=1 --", "'); DROP TABLE jobs; --", "1; SELECT pg_sleep(9)", "\\'; --",
    "$1", ":id", "%(uid)s", "NULL", "null", "None", "undefined", "true", "NaN", "Infinity", "-1",
    "0", "1e309", "0x10", "1_000", "9" * 40, "[]", "{\"a\":1}", "[object Object]", "=1+1",
    "@SUM(1)",
    "__proto__", "constructor", "__class__", "admin", "root", "default", "*:*", "a\rb", "a\x0bb",
)  # fmt: skip
_LONG = tuple(
    batch * size for batch in ("a", "é", "../", "%2f", "\0", "$(", "😀") for size in (64, 999)
)
ATOMS = (*_SHELL, *_PATHS, *_TEXT, *_FORMATS, *_LONG)


def corpus() -> list[str]:
    """Each alone, before, behind and between something harmless."""
    shapes = ("{}", "job{}", "{}job", "a{}z")
    return list(dict.fromkeys(shape.replace("{}", atom) for atom in ATOMS for shape in shapes))


CORPUS = corpus()
BOMBS: tuple[bytes, ...] = (
    b"",
    b"{",
    b"[" * 100_000,
    b'{"a":' * 60_000,
    b'{"command":' + b"[" * 500 + b"]" * 500 + b"}",
    b'{"command":["a"],"workflow_args":' + b'{"a":' * 40 + b"1" + b"}" * 41,
    b'{"priority":' + b"9" * 5000 + b',"command":["a"]}',
    b'{"priority":1e999,"command":["a"]}',
    b'{"priority":NaN,"command":["a"]}',
    b'{"command":["\xff\xfe"]}',
    b'{"command":["\\ud800"]}',
    b'{"command":["\\u0000"]}',
    b"\xef\xbb\xbf{}",
    b"null",
    b"1",
    b'"text"',
    b"[]",
    b"<xml/>",
    b"--- !!python/object/apply:os.system [id]",
)
"""Bodies that no door takes."""
