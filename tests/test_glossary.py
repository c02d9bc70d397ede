"""docs/glossary.md gives each word one meaning."""

import io
import re
import tokenize
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.test_house import ROOMS

HOUSE = Path(__file__).parents[1]
GLOSSARY = HOUSE / "docs" / "glossary.md"


def defined(page: str) -> list[str]:
    """The words that a page defines: what its tables set in bold, one entry per definition."""
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    return [word.casefold() for row in rows for word in re.findall(r"\*\*(.+?)\*\*", row)]


def twice(page: str) -> list[str]:
    return sorted(word for word, times in Counter(defined(page)).items() if times > 1)


def test_each_word_has_one_meaning() -> None:
    """No word of the glossary is defined twice."""
    page = GLOSSARY.read_text()
    assert len(defined(page)) > 60
    assert twice(page) == []


def test_a_word_that_stands_twice_is_found() -> None:
    """The check sees a second meaning, also inside another word's row and in capitals."""
    page = "| **slack** | a | |\n| **group** | b, with a **Slack** | |\n"
    assert twice(page) == ["slack"]


REPLACED = {
    "beat": "heartbeat",
    "beats": "heartbeats",
    "belief": "success probability",
    "distrusted": "lost",
    "doomed": "preempted, deleted",
    "draft": "plan builder",
    "drafts": "plan builders",
    "evict": "preempt",
    "evicted": "preempted",
    "eviction": "preemption",
    "evictions": "preemptions",
    "evicts": "preempts",
    "experience": "supply history",
    "keeper": "shim",
    "keepers": "shims",
    "living": "active",
    "muster": "gather a gang",
    "patience": "aging limit",
    "picture": "snapshot, plan input",
    "promise": "reservation, guarantee",
    "promises": "reservations, guarantees",
    "scene": "analysis",
    "sick": "unhealthy",
    "team": "gang",
    "teams": "gangs",
    "trial": "simulation",
    "trouble": "region block",
    "troubles": "region blocks",
    "whoever": "the subject",
    "whys": "pending reasons",
    "wish": "VM request",
    "wishes": "VM requests",
    "yard": "simulation",
}
"""Parts of names that no identifier has any more."""

STORED = {"last_beat_at", "belief", "belief_bar", "usual_belief", "living_hours", "patience"}
"""Columns, REST fields and configuration keys keep their spelling."""

NAMES_OPEN: dict[str, set[str]] = {}
"""Rooms that still have old names, with the words: a list that only gets shorter."""


def identifiers(source: str) -> set[str]:
    """Every name in the code: of modules, classes, functions, arguments, variables, attributes."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.string for token in tokens if token.type == tokenize.NAME}


def old_words(name: str) -> set[str]:
    parts = re.findall(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+", name)
    return set() if name in STORED else {part.lower() for part in parts} & set(REPLACED)


@pytest.mark.parametrize("room", [*ROOMS, "bench", "tests"])
def test_no_identifier_has_a_replaced_word(room: str) -> None:
    """Where a word was replaced, the old one does not come back as a name."""
    open_words = NAMES_OPEN.get(room, set())
    found = {
        f"{path.relative_to(HOUSE)}: {name}: say {', '.join(REPLACED[w] for w in old)}"
        for path in sorted((HOUSE / room).rglob("*.py"))
        for name in identifiers(path.read_text())
        if (old := old_words(name) - open_words)
    }
    assert sorted(found) == []


def test_a_replaced_word_is_found_by_its_part() -> None:
    """The check reads parts of names, so that a longer word is not taken for an old one."""
    assert old_words("VmBeat") == old_words("apply_beats") - {"beats"} | {"beat"}
    assert old_words("heartbeat") == old_words("last_beat_at") == set()


PROSE = {
    "relic": (r"\bwhoever\b|\bone's own\b", "name the subject: the job, the VM, a client"),
    "those": (r"\bthose that\b", "name them: the jobs that, the VMs that"),
    "evict": (r"\bevict\w*", "preempt, preemption"),
    "yield": (r"\byield(s|ed|ing)?\b(?! from| \w+$)", "is preempted, gives its place"),
    "keeper": (r"(?<!\.)\bkeepers?\b", "shim (of a job), supervisor (of a server)"),
    "beat": (r"(?<!-)\bbeats?\b(?! in waiting)", "heartbeat"),
    "trouble": (r"\btroubles?\b", "region block, fault"),
    "old nouns": (
        r"\b(yards?|wish(es|ed)?|drafts?|scenes?|beliefs?|muster\w*)\b",
        "simulation, VM request, plan, analysis, success probability, gang",
    ),
    "old states": (r"\b(doomed|distrusted|sick)\b", "preempted, lost, unhealthy"),
    "trial": (r"\btrials?\b", "simulation"),
    "promise": (
        r"\bpromis(e|es|ed|ing)\b",
        "reservation (of capacity), guarantee (of the service)",
    ),
    "patience": (r"(?<![.`])\bpatience\b(?! =|=)", "aging limit, wait limit"),
    "turn": (
        r"\b(each|every|per|this|next|whole|one|a|\d) turns?\b(?! of (mind|phrase))",
        "scheduling cycle",
    ),
    "round": (r"\b(each|every|per|this|next) round\b(?! trip)", "reconcile"),
    "living": (r"\bliving (jobs?|VMs?|attempts?|members?)\b", "active"),
    "takings": (r"\btakings\b|\bspot taken\b|\bVMs? (is|are|was|were) taken\b", "reclaimed"),
}
"""Old words in sentences, each as a pattern of its meaning, and what to say."""

PROSE_ALLOWED = {
    ("docs/internals/queue.md", "yield"): "names of events that are stored",
    ("docs/internals/state-machines.md", "yield"): "names of events that are stored",
    ("docs/reference/events.md", "yield"): "names of events that are stored",
    ("docs/reference/metrics.md", "yield"): "the label of a metric",
    ("scheduler/operations/metrics.py", "yield"): "the label of a metric",
    ("core/job.py", "yield"): "values that are stored",
    ("cli/commands/tenants.py", "yield"): "a variable of a format string",
    ("bench/crowd.py", "trouble"): "the name of a table",
    ("db/reads.py", "trouble"): "the name of a table",
    ("db/retention.py", "trouble"): "the name of a table",
    ("db/small_writes.py", "trouble"): "the name of a table",
    ("db/snapshot.py", "trouble"): "the name of a table",
    ("db/tables/capacity.py", "trouble"): "the name of a table",
    ("sim/memory/retention.py", "trouble"): "the name of a table",
    ("core/job_file_schema.py", "old nouns"): "the name of a JSON Schema dialect",
    ("config/schema.py", "patience"): "the key queue.patience",
    ("db/embedded/supervisor.py", "keeper"): "a member of a file on disk",
    ("sim/virtual/crash_points.py", "old nouns"): "a seed of the dice",
    ("sim/virtual/run.py", "old nouns"): "a seed of the dice",
    ("cli/commands/capacity.py", "old nouns"): "a field of the API",
    ("migrations/versions/0001_first_schema.py", "trouble"): "the name of a table",
    ("migrations/versions/0017_never_works.py", "trouble"): "the name of a table",
    ("tests/attacks/mutations.py", "yield"): "a statement of Python",
    ("tests/cli/commands/test_capacity.py", "old nouns"): "a field of the API",
    ("tests/scheduler/api/routes/test_capacity.py", "old nouns"): "a field of the API",
    ("tests/config/test_load_queue.py", "patience"): "the key queue.patience",
    ("tests/core/test_cost.py", "yield"): "a value that is stored",
    ("tests/db/test_cost.py", "yield"): "a value that is stored",
    ("tests/db/contract/capacity.py", "trouble"): "the name of a table",
    ("tests/db/contract/retention.py", "trouble"): "the name of a table",
    ("tests/db/test_retention.py", "trouble"): "the name of a table",
    ("tests/scheduler/api/routes/test_service.py", "yield"): "the label of a metric",
}
"""(file, key of PROSE): why the word may stand there."""

PROSE_OPEN: dict[str, set[str]] = {}
"""Rooms whose sentences still have old words, with the keys: a list that only gets shorter."""


@cache
def sentences(path: Path) -> Sequence[str]:
    """Comments and texts of a module; the lines of a page."""
    source = path.read_text()
    if path.suffix != ".py":
        return source.splitlines()
    return [
        line
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type in (tokenize.COMMENT, tokenize.STRING)
        for line in token.string.splitlines()
    ]


def pages_of(room: str) -> list[Path]:
    if room.endswith(".md"):
        return [HOUSE / room]
    found = [path for kind in ("*.py", "*.md") for path in (HOUSE / room).rglob(kind)]
    return sorted(set(found) - {GLOSSARY, Path(__file__)})


@pytest.mark.parametrize("room", [*ROOMS, "bench", "docs", "tests", "README.md", "CHANGELOG.md"])
def test_no_sentence_has_a_replaced_word(room: str) -> None:
    """Comments, docstrings, messages, help texts and pages use the words of the glossary."""
    found = []
    for path in pages_of(room):
        name = str(path.relative_to(HOUSE))
        for key, (pattern, say) in PROSE.items():
            if key in PROSE_OPEN.get(room, set()) or (name, key) in PROSE_ALLOWED:
                continue
            old = re.compile(pattern, re.IGNORECASE)
            found += [f"{name}: {line}: {say}" for line in sentences(path) if old.search(line)]
    assert found == []


def test_an_allowed_word_is_still_needed() -> None:
    """An exception goes when its sentence goes."""
    idle = [
        (name, key)
        for name, key in PROSE_ALLOWED
        if not any(
            re.search(PROSE[key][0], line, re.IGNORECASE) for line in sentences(HOUSE / name)
        )
    ]
    assert idle == []
