"""Writes what the docs take from the source: reference/api.md, and the module table of the architecture page.

    python docs/generate_api.py

A test compares the pages with the source, so run this after changing a signature, a docstring or a module.
"""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PACKAGE = Path(__file__).parents[1] / "kimi_agent"
PAGE = Path(__file__).with_name("reference") / "api.md"
ARCHITECTURE = Path(__file__).with_name("explanation") / "architecture.md"
MODULE_TABLE = re.compile(r"(?<=<!-- modules: begin -->\n).*?(?=<!-- modules: end -->)", re.DOTALL)

# What a reader looks for first stands first; modules that are not named here follow.
ORDER = ("agent", "tools", "results", "events", "options", "errors", "messages", "transport", "dialects")

INTRODUCTION = """\
# API

All public names with what their docstrings say. This page is written by `docs/generate_api.py`: edit the
docstrings, not this file. The names of a first program can be imported from `kimi_agent` itself; every name
can be imported from the module it is listed under.
"""

Documented: TypeAlias = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
Declaration: TypeAlias = tuple[ast.stmt, str]
"""A statement and the docstring below it, `""` if there is none."""

SECTION = re.compile(r"(Args|Raises|Returns|Yields):\Z")
ENTRY = re.compile(r"(\*{0,2}[\w, ]+): (.*)")
LINE_LENGTH = 100
DUNDERS = ("__init__", "__call__", "__add__")


def public_modules() -> Iterator[tuple[str, list[ast.Module]]]:
    """The dotted name of each public module with its source, the `__init__` first for a folder."""
    paths = [path for path in PACKAGE.iterdir() if not path.name.startswith("_") and path.name != "cli"]
    for path in sorted(paths, key=lambda path: (_place(path.stem), path.stem)):
        if path.suffix == ".py":
            yield f"kimi_agent.{path.stem}", [parsed(path)]
        elif (path / "__init__.py").exists():
            others = [
                other
                for other in sorted(path.rglob("*.py"))
                if other.parent != path or other.stem != "__init__"
            ]
            yield f"kimi_agent.{path.name}", [parsed(path / "__init__.py"), *map(parsed, others)]


def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text("utf-8"))


def public_declarations(sources: Sequence[ast.Module]) -> Iterator[Declaration]:
    """What a public module declares for its users, in the order of the source."""
    wanted = _exported(sources[0]) if len(sources) > 1 else None
    for source in sources:
        for declaration in declarations(source):
            if wanted is None or name_of(declaration[0]) in wanted:
                yield declaration


def declarations(holder: ast.Module | ast.ClassDef) -> Iterator[Declaration]:
    """The public declarations of a module or class."""
    for place, node in enumerate(holder.body):
        if not is_public(node):
            continue
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node, ast.get_docstring(node) or ""
        else:
            following = holder.body[place + 1 : place + 2]
            yield node, _text_of(following[0]) if following else ""


def name_of(node: ast.stmt) -> str:
    """The name that a statement declares, or `""`."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            return name
        case _:
            return ""


def is_public(node: ast.stmt) -> bool:
    """Whether users may use what a statement declares."""
    name = name_of(node)
    return name in DUNDERS or bool(name and not name.startswith("_"))


def signature(node: ast.stmt) -> str:
    """A declaration without its body."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
            returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
            decorators = "".join(f"@{ast.unparse(each)} " for each in node.decorator_list)
            return f"{decorators}{word} {node.name}({', '.join(parameters(node.args))}){returns}"
        case ast.ClassDef():
            bases = ", ".join(ast.unparse(each) for each in [*node.bases, *node.keywords])
            return f"class {node.name}({bases})" if bases else f"class {node.name}"
        case ast.AnnAssign():
            default = f" = {ast.unparse(node.value)}" if node.value else ""
            return f"{ast.unparse(node.target)}: {ast.unparse(node.annotation)}{default}"
        case ast.Assign():
            return f"{ast.unparse(node.targets[0])} = {ast.unparse(node.value)[:80]}"
        case _:
            return ""


def parameters(arguments: ast.arguments) -> Iterator[str]:
    """The parameters of a function, bare `*` and `/` included, as they are written."""
    positional = [*arguments.posonlyargs, *arguments.args]
    without = len(positional) - len(arguments.defaults)
    for place, argument in enumerate(positional):
        yield _parameter(argument, arguments.defaults[place - without] if place >= without else None)
        if place == len(arguments.posonlyargs) - 1:
            yield "/"
    if arguments.vararg is not None:
        yield f"*{_parameter(arguments.vararg, None)}"
    elif arguments.kwonlyargs:
        yield "*"
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _parameter(argument, default)
    if arguments.kwarg is not None:
        yield f"**{_parameter(arguments.kwarg, None)}"


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    if argument.annotation is None:
        return argument.arg if default is None else f"{argument.arg}={ast.unparse(default)}"
    text = f"{argument.arg}: {ast.unparse(argument.annotation)}"
    return text if default is None else f"{text} = {ast.unparse(default)}"


def laid_out(node: ast.stmt) -> str:
    """`signature`, with one parameter a line where it is long."""
    line = signature(node)
    if len(line) <= LINE_LENGTH or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return line
    joined = ", ".join(parameters(node.args))
    each = "".join(f"    {parameter},\n" for parameter in parameters(node.args))
    return line.replace(f"({joined})", f"(\n{each})", 1)


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for module, sources in public_modules():
        parts.append(f"## {module}\n\n{_prose(ast.get_docstring(sources[0]) or '')}\n")
        parts += [_section(node, docstring) for node, docstring in public_declarations(sources)]
    return "\n".join(parts)


def _section(node: ast.stmt, docstring: str) -> str:
    parts = [f"### {name_of(node)}\n\n```text\n{laid_out(node)}\n```\n"]
    if docstring:
        parts.append(_prose(docstring) + "\n")
    if isinstance(node, ast.ClassDef):
        members = list(declarations(node))
        fields = [
            _field(member, text) for member, text in members if isinstance(member, ast.AnnAssign | ast.Assign)
        ]
        if fields:
            parts.append("\n".join(fields) + "\n")
        parts += [
            _method(node.name, member, text)
            for member, text in members
            if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
    return "\n".join(parts)


def _method(owner: str, node: ast.stmt, docstring: str) -> str:
    code = f"```text\n{laid_out(node)}\n```\n"
    return f"#### {owner}.{name_of(node)}\n\n{code}\n{_prose(docstring)}".rstrip() + "\n"


def _field(node: ast.stmt, docstring: str) -> str:
    text = " ".join(docstring.split())
    return f"- `{signature(node)}`" + (f": {text}" if text else "")


def _prose(docstring: str) -> str:
    """A docstring as Markdown: its sections become lists, its `::` blocks code."""
    lines: list[str] = []
    in_section = False
    for line in docstring.splitlines():
        if section := SECTION.match(line):
            in_section = True
            lines += [f"**{section[1]}**", ""]
        elif in_section and line.startswith("    ") and not line.startswith("     "):
            entry = ENTRY.match(line.strip())
            lines.append(f"- `{entry[1]}`: {entry[2]}" if entry else f"- {line.strip()}")
        elif in_section and line.startswith("     "):
            lines.append("  " + line.strip())
        elif line.endswith("::"):
            lines.append(line[:-1])
        else:
            lines.append(line)
    return "\n".join(lines)


def _text_of(node: ast.stmt) -> str:
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return inspect.cleandoc(text)
        case _:
            return ""


def _exported(source: ast.Module) -> list[str]:
    for node in source.body:
        if isinstance(node, ast.Assign) and name_of(node) == "__all__":
            return [ast.literal_eval(item) for item in getattr(node.value, "elts", [])]
    return []


def _place(module: str) -> int:
    return ORDER.index(module) if module in ORDER else len(ORDER)


def architecture_page() -> str:
    """The architecture page with its table of modules as they are now."""
    rows = ["| module | what it holds |", "|---|---|"]
    for path in sorted(PACKAGE.rglob("*.py"), key=_module_place):
        if path.name != "__init__.py" or path.parent == PACKAGE:
            docstring = ast.get_docstring(parsed(path)) or ""
            first_line = docstring.partition("\n")[0].replace("|", "\\|")
            rows.append(f"| `{path.relative_to(PACKAGE).as_posix()}` | {first_line} |")
    table = "\n".join(["", *rows, "", ""])
    return MODULE_TABLE.sub(lambda _: table, ARCHITECTURE.read_text("utf-8"))


def _module_place(path: Path) -> tuple[int, str]:
    """Public modules first, then the core, the runtime and the rest, as in the picture."""
    folder = path.relative_to(PACKAGE).parts[0]
    folders = ("dialects", "_core", "_runtime", "testing", "cli")
    return (folders.index(folder) + 1 if folder in folders else 0, path.as_posix())


if __name__ == "__main__":
    for target, text in ((PAGE, page()), (ARCHITECTURE, architecture_page())):
        target.write_text(text, "utf-8")
        print(f"wrote {target.relative_to(PACKAGE.parent)}")
