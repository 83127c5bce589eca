"""Where a request goes behind its base URL: the path and the query, without keys of this proxy."""

from proxy.core.credentials import own_secrets
from proxy.engine.client import Client
from proxy.headers import uses_operators_key
from proxy.ports import Deployment, Subject
from proxy.query import refuse_key, without_keys


def sent_query(client: Client, deployment: Deployment, subject: Subject) -> str:
    """The query that the deployment is sent."""
    if not client.query:
        return ""
    hides_credentials = subject.virtual or uses_operators_key(deployment)
    return without_keys(client.query, _secrets(client, subject), hides_credentials=hides_credentials)


def refuse_key_in_path(client: Client, subject: Subject) -> None:
    """Raises InvalidRequest for a path that holds a key of this proxy."""
    refuse_key(client.path, _secrets(client, subject))


def _secrets(client: Client, subject: Subject) -> tuple[str, ...]:
    return own_secrets(client.headers, is_virtual=subject.virtual, forwards_key=subject.forwards_key)
