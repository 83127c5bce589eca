"""HTTP: routes, the client's side of an exchange as ASGI, and the composition root."""
