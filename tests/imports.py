"""Which test files depend on which files of the package, by the imports that stand in them.

`from package import name`, and `package.name` after `import package`, lead to the module that defines the name, through
packages that only pass it on. A package that loads modules by name, as the command line does, depends on all of them.
The name of a module in a string, as in `-m alphafair.precompile`, counts as an import; imports for types alone do not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path


def files_of_tests(root: Path) -> list[str]:
    """All test files, as paths below the root."""
    return [path.relative_to(root).as_posix() for path in sorted((root / "tests").rglob("test_*.py"))]


def _at_run_time(tree: ast.AST) -> Iterator[ast.AST]:
    """All parts of a syntax tree but those for types alone."""
    left = [tree]
    while left:
        node = left.pop()
        if not (isinstance(node, ast.If) and _dotted(node.test) == "TYPE_CHECKING"):
            yield node
            left += ast.iter_child_nodes(node)


def _dotted(node: ast.AST) -> str:
    """A name with dots, as in `package.module`; empty for what is none."""
    if isinstance(node, ast.Attribute):
        return f"{before}.{node.attr}" if (before := _dotted(node.value)) else ""
    return node.id if isinstance(node, ast.Name) else ""


class Imports:
    """The imports of a tree; files are named by their paths below its root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.modules: dict[str, str] = {}  # files by the name of the module
        for folder, package in (("src", "alphafair"), (".", "tests")):
            for path in sorted((root / folder / package).rglob("*.py")):
                name = ".".join(path.relative_to(root / folder).with_suffix("").parts).removesuffix(".__init__")
                self.modules[name] = path.relative_to(root).as_posix()
        self.tree = cache(self._tree)
        self.direct = cache(self._direct)
        self.home = cache(self._home)

    def _tree(self, file: str) -> ast.Module:
        return ast.parse((self.root / file).read_text())

    def _direct(self, file: str) -> frozenset[str]:
        """The files that a file imports."""
        found = set(self._imported(self.tree(file), file))
        if file.endswith("/cli/__init__.py"):
            folder = file.removesuffix("__init__.py")
            found |= {each for each in self.modules.values() if each.startswith(folder)}
        return frozenset(found - {file})

    def _imported(self, tree: ast.AST, file: str) -> Iterator[str]:
        for node in _at_run_time(tree):
            if isinstance(node, ast.Import):
                yield from (self.modules[alias.name] for alias in node.names if alias.name in self.modules)
            elif isinstance(node, ast.Attribute) and (module := _dotted(node.value)) in self.modules:
                yield self.home(module, node.attr)
            elif isinstance(node, ast.ImportFrom) and node.module in self.modules:
                yield from (self.home(node.module, alias.name) for alias in node.names)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in self.modules:
                yield self.modules[node.value]

    def _home(self, module: str, name: str) -> str:
        """The file that defines a name of a module."""
        if f"{module}.{name}" in self.modules:
            return self.modules[f"{module}.{name}"]
        file = self.modules[module]
        if not file.endswith("__init__.py") or not file.startswith("src/"):
            return file
        for node in ast.walk(self.tree(file)):
            if isinstance(node, ast.ImportFrom) and node.module in self.modules:
                if name in [alias.asname or alias.name for alias in node.names]:
                    return self.home(node.module, name)
                if node.names[0].name == "*" and (found := self.home(node.module, name)) != self.modules[node.module]:
                    return found
        return file

    def dependents(self, files: Iterable[str]) -> dict[str, int]:
        """All files that depend on one of these, by the least number of imports in between; those themselves have 0."""
        importers: dict[str, list[str]] = {file: [] for file in self.modules.values()}
        for file in importers:
            for each in self.direct(file):
                importers[each].append(file)
        found, latest, steps = dict.fromkeys(files, 0), [*files], 0
        while latest:
            steps += 1
            latest = [each for each in {each for one in latest for each in importers[one]} if each not in found]
            found |= dict.fromkeys(latest, steps)
        return found

    def closest_tests(self, file: str) -> list[str]:
        """The test files that depend on a file, the closest first, and small ones before large ones."""
        found = self.dependents([file])
        tests = [test for test in files_of_tests(self.root) if test in found]
        return sorted(tests, key=lambda test: (found[test], (self.root / test).stat().st_size, test))
