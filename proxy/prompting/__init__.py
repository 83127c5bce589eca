"""The operator's prompts around the pure core: registry, templates, and composing.

``sources`` says which folders, plugins and fragments there are; ``files`` reads a Markdown file with its front
matter; ``templates`` compiles Jinja (``language`` says what of it, ``filters`` with which filters, ``work`` within
which bounds). Together they are a ``snapshot``, which never changes and has a version. ``registry`` follows the files
beside the event loop and puts a new snapshot in the place of the old one, or keeps the old one where a file is
broken.

``composer`` is what the engine calls for each chat request: ``rules`` says by which terms the request is composed
(what the configuration says, and what the client may choose of it), ``compositions`` composes by them and remembers
the result. What does not depend on files and templates is in ``proxy.core.prompts``.
"""
