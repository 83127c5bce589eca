"""The model table that is in force: one that can be replaced as a whole while requests run."""

from collections.abc import Sequence

from proxy.deployments.table import Levels, ModelTable
from proxy.ports import Deployment


class LiveModels:
    """The Models port over whichever ``table`` is in force. A request that runs keeps the deployments it was given."""

    def __init__(self, table: ModelTable) -> None:
        self.table = table

    def resolve(self, name: str) -> Deployment:
        """The first deployment for that name. Raises UnknownModel."""
        return self.table.resolve(name)

    def levels(self, name: str) -> Levels:
        """Every deployment for that name, group by group, then those of its fallbacks. Raises UnknownModel."""
        return self.table.levels(name)

    def names(self) -> Sequence[str]:
        """The names that are listed one by one."""
        return self.table.names()

    def patterns(self) -> Sequence[str]:
        """The names with a star."""
        return self.table.patterns()

    def sole(self) -> Deployment | None:
        """The one upstream that gets all names as they are, where there is no other."""
        return self.table.sole()

    def known(self, deployment_id: str) -> Deployment | None:
        """The deployment of that id, where there is one still."""
        return self.table.known(deployment_id)

    def unnamed(self) -> Sequence[Deployment]:
        """Who may serve paths that name no model, the one that does first. Raises UnknownModel."""
        return self.table.unnamed()
