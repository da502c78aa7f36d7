"""A name is found once: a search for a file or a class gives one answer."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import stoker

PACKAGE = Path(stoker.__file__).parent

#: verbs that users type in two places, and what they give: the node in a plan and what a user holds
SAME_IDEA = {"Batch"}


def test_a_file_name_is_found_once_in_the_tree() -> None:
    where = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        if path.name != "__init__.py":
            where[path.name].append(str(path.relative_to(PACKAGE)))
    assert [paths for paths in where.values() if len(paths) > 1] == []


def test_a_class_name_is_found_once_in_the_tree() -> None:
    where = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                where[node.name].append(str(path.relative_to(PACKAGE)))
    assert {name: paths for name, paths in where.items() if len(paths) > 1 and name not in SAME_IDEA} == {}
