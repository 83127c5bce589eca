"""An independent check that what the proxy forwards is still what the client said. See README.md."""
