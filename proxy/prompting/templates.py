"""Templates of prompts: compiled once for each text, and rendered within bounds."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType

from jinja2 import Template, TemplateError, TemplateSyntaxError, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.idtracking import VAR_LOAD_RESOLVE

from proxy.core.prompts.failures import RenderError
from proxy.core.prompts.prompt import ROOTS, Json, Prompt, PromptContext
from proxy.prompting.filters import FILTERS, TESTS
from proxy.prompting.language import GLOBALS, WORK, PromptEnvironment, check, counted
from proxy.prompting.work import MOST_CHARS, Work

_FAILURES = (TemplateError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_ENVIRONMENT = PromptEnvironment(FILTERS, TESTS)
_FILE = "<template>"
_LINE = re.compile(r"\Aline \d+")


@dataclass(frozen=True, slots=True)
class Uses:
    """What a template refers to: ``names`` that it does not set itself, the dotted ``paths`` below them that it spells
    out, and the ``fragments`` that it names."""

    names: frozenset[str] = frozenset()
    paths: frozenset[str] = frozenset()
    fragments: frozenset[str] = frozenset()


def _paths(tree: nodes.Template) -> list[list[str]]:
    """Every path that a template spells out, also below names of its own."""
    inner: set[int] = set()
    # A path comes before those that it begins with.
    found = tree.find_all((nodes.Getattr, nodes.Getitem, nodes.Name))
    return [path for node in found if id(node) not in inner and (path := _path(node, inner))]


def _fragments(tree: nodes.Template) -> Iterator[str]:
    for call in tree.find_all(nodes.Call):
        if isinstance(call.node, nodes.Name) and call.node.name == "fragment":
            yield from (str(arg.value) for arg in call.args if isinstance(arg, nodes.Const))


def _path(node: nodes.Node, inner: set[int]) -> list[str]:
    """The names of a path; those behind a number or a name that is not spelled out are left off."""
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


def _read(text: str) -> nodes.Template:
    try:
        tree = _ENVIRONMENT.parse(text)
    except TemplateSyntaxError as error:
        raise RenderError(f"line {error.lineno}: {error.message}") from error
    except (RecursionError, ValueError) as error:
        raise RenderError("the template cannot be read: it is nested too deeply, or a number is too long") from error
    check(tree, _ENVIRONMENT)
    return tree


@dataclass(frozen=True, slots=True)
class Compiled:
    """A template that can be rendered, and what it refers to."""

    template: Template
    uses: Uses


class _Generator(CodeGenerator):
    """Jinja's generator of code, which keeps the names that a template takes from outside."""

    def __init__(self) -> None:
        super().__init__(_ENVIRONMENT, None, None, optimized=False)
        self.names: set[str] = set()

    def enter_frame(self, frame: Frame) -> None:
        """Resolve the names of a scope."""
        super().enter_frame(frame)
        loads = frame.symbols.loads.values()
        self.names.update(name for action, name in loads if action == VAR_LOAD_RESOLVE and name is not None)


def compiled(text: str) -> Compiled:
    """The template of a text. Raises RenderError where it cannot be read."""
    tree = _read(text)
    paths, fragments = _paths(tree), frozenset(_fragments(tree))
    generator = _Generator()
    try:
        generator.visit(counted(tree, _ENVIRONMENT))
        code = compile(generator.stream.getvalue(), _FILE, "exec")  # type: ignore[attr-defined]
    except TemplateSyntaxError as error:
        raise RenderError(f"line {error.lineno}: {error.message}") from error
    except (TemplateError, SyntaxError, RecursionError, MemoryError) as error:
        raise RenderError("the template cannot be compiled: it is nested too deeply") from error
    template = Template.from_code(_ENVIRONMENT, code, {**_ENVIRONMENT.globals}, None)
    names = frozenset(generator.names) - GLOBALS
    uses = Uses(names, frozenset(".".join(path) for path in paths if path[0] in names), fragments)
    return Compiled(template, uses)


class Templates:
    """The compiled templates of a set of prompts, by their texts: a text that has changed is never taken for what it
    was under the same id. Nothing here changes, so that any thread may render."""

    def __init__(
        self,
        prompts: Iterable[Prompt],
        fragments: Mapping[str, str] | None = None,
        earlier: "Templates | None" = None,
    ) -> None:
        """``fragments`` are the texts that templates may include, by name. What ``earlier`` has compiled is taken from
        there. Raises RenderError, which begins with the prompt's origin or its id."""
        self.fragments: Mapping[str, str] = dict(fragments or {})
        known = earlier._compiled if earlier is not None else {}
        self._compiled: dict[str, Compiled] = {}
        for prompt in prompts:
            if prompt.is_literal:
                continue
            try:
                found = known.get(prompt.text) or compiled(prompt.text)
                for _, why in unknown_names(prompt, found.uses, self.fragments):
                    raise RenderError(why)
                self._compiled[prompt.text] = found
            except RenderError as error:
                raise RenderError(f"{prompt.origin or prompt.id}: {in_file(error, prompt)}") from error

    def render(self, prompt: Prompt, context: PromptContext, variables: Mapping[str, Json]) -> str:
        """The text of a prompt. The values of the context and of the prompt's own variables are texts and never
        templates. Raises RenderError."""
        if prompt.is_literal:
            return prompt.text
        template = (self._compiled.get(prompt.text) or compiled(prompt.text)).template
        work = Work(self.fragments)
        try:
            rendered = template.new_context({**variables, **context, WORK: work})
            return _joined(template, rendered)
        except RenderError as error:
            raise RenderError(in_file(f"{_line(template, error.__traceback__)}{error}", prompt)) from error
        except _FAILURES as error:
            # A message of Python's own may quote a value.
            why = error.message if isinstance(error, TemplateError) else None
            line = _line(template, error.__traceback__)
            raise RenderError(in_file(f"{line}{why or type(error).__name__}", prompt)) from error


def in_file(error: object, prompt: Prompt) -> str:
    """What is wrong with a template, with the line of the prompt's file instead of the text's."""
    return _LINE.sub(lambda found: f"line {int(found[0][5:]) + prompt.first_line - 1}", str(error), 1)


def unknown_names(prompt: Prompt, uses: Uses, fragments: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What a template refers to and nobody defines, sorted: the kind of mistake, and what is wrong."""
    known = {*ROOTS, *(variable.name for variable in prompt.variables)}
    for name in sorted(uses.names - known):
        why = "is neither a root of the context nor a variable of the prompt"
        yield "undefined-variable", f"{_where(name, prompt)}'{name}' {why}"
    for name in sorted(uses.fragments - fragments.keys()):
        yield "unknown-fragment", f"{_where(name, prompt)}there is no fragment '{name}'"


def _where(name: str, prompt: Prompt) -> str:
    """The line in which a tag names it first, as the beginning of a message."""
    found = re.search(rf"\{{[{{%][^{{}}]*?\b{re.escape(name)}\b", prompt.text)
    return f"line {prompt.text.count(chr(10), 0, found.end()) + 1}: " if found is not None else ""


def _joined(template: Template, context: object) -> str:
    parts: list[str] = []
    chars = 0
    for part in template.root_render_func(context):  # type: ignore[arg-type]
        chars += len(part)
        if chars > MOST_CHARS:
            raise RenderError(f"the template makes a text of more than {MOST_CHARS} characters")
        parts.append(part)
    return "".join(parts)


def _line(template: Template, trace: TracebackType | None) -> str:
    """The line of the template in which an error was raised, as the beginning of a message."""
    line = 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == _FILE:
            line = template.get_corresponding_lineno(trace.tb_lineno)
        trace = trace.tb_next
    return f"line {line}: " if line else ""
