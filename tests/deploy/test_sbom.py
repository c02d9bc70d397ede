"""The SBOM lists the packages of the image, as the lock has them."""

from __future__ import annotations

from deploy.sbom import runtime_sbom

WHOLE = {
    "metadata": {"component": {"bom-ref": "root-component"}},
    "components": [
        {"bom-ref": "a", "name": "Google_Auth", "version": "2.6", "externalReferences": [{}]},
        {"bom-ref": "b", "name": "pytest", "version": "9.2"},
        {"bom-ref": "c", "name": "click", "version": "8.5"},
    ],
    "dependencies": [
        {"ref": "root-component", "dependsOn": ["a", "b"]},
        {"ref": "a", "dependsOn": ["c"]},
        {"ref": "b", "dependsOn": ["c"]},
        {"ref": "c"},
    ],
}
LOCK = """\
click==8.5 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
google-auth==2.6 \\
    --hash=sha256:cc
"""


def test_packages_of_tests_are_neither_listed_nor_needed() -> None:
    """And who needs whom is told of the rest."""
    made = runtime_sbom(WHOLE, LOCK)
    assert [part["name"] for part in made["components"]] == ["Google_Auth", "click"]
    assert made["dependencies"] == [
        {"ref": "root-component", "dependsOn": ["a"]},
        {"ref": "a", "dependsOn": ["c"]},
        {"ref": "c", "dependsOn": []},
    ]


def test_each_package_has_the_hashes_of_the_lock() -> None:
    """Beside what the tool knew of it."""
    made = runtime_sbom(WHOLE, LOCK)
    first, second = (part["externalReferences"] for part in made["components"])
    assert len(first) == 2
    (found,) = second
    assert [each["content"] for each in found["hashes"]] == ["aa", "bb"]
    assert found["url"] == "https://pypi.org/simple/click/"
