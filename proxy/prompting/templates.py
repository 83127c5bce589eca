"""Templates of prompts: compiled once for each text, and rendered within bounds."""

import re
from collections.abc import Iterable, Iterator, Mapping
from traceback import walk_tb
from types import TracebackType

from jinja2 import Template, TemplateError, TemplateSyntaxError, UndefinedError, nodes
from jinja2.meta import find_undeclared_variables

from proxy.core.prompts.prompt import ROOTS, Json, Prompt, PromptContext, RenderError
from proxy.core.value import dataclass
from proxy.prompting.filters import FILTERS, TESTS
from proxy.prompting.language import WORK, PromptEnvironment, Work, bounded, check, counted

_FAILURES = (TemplateError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_ENVIRONMENT = PromptEnvironment(FILTERS, TESTS)
_FILE = "<template>"
_LINE = re.compile(r"\Aline \d+")


@dataclass(frozen=True, slots=True)
class Uses:
    """The references of a template: the ``names`` that it does not set itself, the dotted ``paths`` below them that it
    writes out, and the ``fragments`` that it names."""

    names: frozenset[str] = frozenset()
    paths: frozenset[str] = frozenset()
    fragments: frozenset[str] = frozenset()


def _paths(tree: nodes.Template) -> list[list[str]]:
    """Every path that a template writes out, also below names of its own."""
    inner: set[int] = set()
    # A path comes before the shorter paths with which it begins.
    found = tree.find_all((nodes.Getattr, nodes.Getitem, nodes.Name))
    return [path for node in found if id(node) not in inner and (path := _path(node, inner))]


def _path(node: nodes.Node, inner: set[int]) -> list[str]:
    """The names of a path. Names after a number, or after a name that is not written out, are left out."""
    steps: list[str] = []
    while not isinstance(node, nodes.Name):
        if isinstance(node, nodes.Getattr):
            steps.append(node.attr)
        elif isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str):
            steps.append(node.arg.value)
        elif isinstance(node, nodes.Getitem):
            steps.clear()
        else:
            return []
        node = node.node
        inner.add(id(node))
    return [node.name, *reversed(steps)]


def compiled(text: str) -> tuple[Template, Uses]:
    """The template of a text, and its references. Raises RenderError if it cannot be read."""
    try:
        tree = _ENVIRONMENT.parse(text)
        check(tree, _ENVIRONMENT)
        names = frozenset(find_undeclared_variables(tree))
        paths = frozenset(".".join(path) for path in _paths(tree) if path[0] in names)
        calls = [call for call in tree.find_all(nodes.Call) if getattr(call.node, "name", "") == "fragment"]
        args = [arg.value for call in calls for arg in call.args if isinstance(arg, nodes.Const)]
        uses = Uses(names, paths, frozenset(map(str, args)))
        counted(tree)
        tree.set_environment(_ENVIRONMENT)
        code = _ENVIRONMENT.compile(tree)
    except TemplateSyntaxError as error:
        raise RenderError(f"line {error.lineno}: {error.message}") from error
    except (TemplateError, SyntaxError, RecursionError, MemoryError, ValueError) as error:
        raise RenderError("the template cannot be read: it is nested too deeply, or a number is too long") from error
    return Template.from_code(_ENVIRONMENT, code, _ENVIRONMENT.globals), uses


class Templates:
    """The compiled templates of a set of prompts, by their texts. So a changed text is never confused with the earlier
    text of the same id. Nothing here changes, so that any thread may render."""

    def __init__(
        self,
        prompts: Iterable[Prompt],
        fragments: Mapping[str, str] | None = None,
        earlier: "Templates | None" = None,
    ) -> None:
        """``fragments`` are the texts that templates may include, by name. Templates that ``earlier`` has compiled are
        not compiled again. Raises RenderError, which begins with the prompt's origin or its id."""
        self.fragments: Mapping[str, str] = dict(fragments or {})
        known = earlier._compiled if earlier is not None else {}
        self._compiled: dict[str, tuple[Template, Uses]] = {}
        for prompt in prompts:
            if prompt.is_literal:
                continue
            try:
                found = known.get(prompt.text) or compiled(prompt.text)
                for _, why in unknown_names(prompt, found[1], self.fragments):
                    raise RenderError(why)
                self._compiled[prompt.text] = found
            except RenderError as error:
                raise RenderError(f"{prompt.origin or prompt.id}: {in_file(error, prompt)}") from error

    def render(self, prompt: Prompt, context: PromptContext, variables: Mapping[str, Json]) -> str:
        """The text of a prompt that is not literal. The values of the context and of the prompt's own variables are
        texts and never templates. Raises RenderError."""
        template, _ = self._compiled.get(prompt.text) or compiled(prompt.text)
        try:
            rendering = template.new_context({**variables, **context, WORK: Work(self.fragments)})
            text = "".join(template.root_render_func(rendering))
            bounded(len(text))
        except (RenderError, *_FAILURES) as error:
            # A message of Python's own, or of the sandbox, may quote a value.
            is_told = isinstance(error, RenderError | UndefinedError)
            why = str(error) if is_told else type(error).__name__
            raise RenderError(in_file(f"{_line(template, error.__traceback__)}{why}", prompt)) from error
        return text


def in_file(error: object, prompt: Prompt) -> str:
    """The error of a template, with the line in the prompt's file instead of the line in the text."""
    return _LINE.sub(lambda found: f"line {int(found[0][5:]) + prompt.first_line - 1}", str(error), 1)


def unknown_names(prompt: Prompt, uses: Uses, fragments: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The references of a template that are not defined anywhere, sorted: the kind of mistake, and a message."""
    known = {*ROOTS, *(variable.name for variable in prompt.variables)}
    for name in sorted(uses.names - known):
        why = "is neither a root of the context nor a variable of the prompt"
        yield "undefined-variable", f"{_where(name, prompt)}'{name}' {why}"
    for name in sorted(uses.fragments - fragments.keys()):
        yield "unknown-fragment", f"{_where(name, prompt)}there is no fragment '{name}'"


def _where(name: str, prompt: Prompt) -> str:
    """The first line in which a tag has the name, as the beginning of a message."""
    found = re.search(rf"\{{[{{%][^{{}}]*?\b{re.escape(name)}\b", prompt.text)
    return f"line {prompt.text.count(chr(10), 0, found.end()) + 1}: " if found is not None else ""


def _line(template: Template, trace: TracebackType | None) -> str:
    """The line of the template in which an error was raised, as the beginning of a message."""
    lines = [number for frame, number in walk_tb(trace) if frame.f_code.co_filename == _FILE]
    return f"line {template.get_corresponding_lineno(lines[-1])}: " if lines else ""
