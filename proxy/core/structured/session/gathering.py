"""The context of one request, of what its form says, what its digests name, and the review that the session has."""

from proxy.core.structured.context import Review, StructuredContext
from proxy.core.structured.form.review import retained
from proxy.core.structured.session.uploads import ResolvedForm


def gathered(resolved: ResolvedForm, session_review: Review | None) -> StructuredContext:
    """The context. ``session_review`` is the review that the session has from earlier requests; the context's own is
    what the session has from this request on. ``references`` are left to who reads the files."""
    form = resolved.form
    return StructuredContext(
        files=resolved.files,
        symbols=form.symbols,
        legend=form.legend,
        tree=form.tree,
        pages=form.pages,
        review=retained(session_review, resolved.review),
        images=form.images,
        session=form.session,
        removed=form.removed,
        modified=form.modified,
        broken=form.broken,
    )
