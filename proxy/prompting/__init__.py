"""The operator's prompts around the pure core: registry, templates, and composing.

``sources`` finds the folders, plugins and fragments, and makes a snapshot of them, which never changes and has a
version; ``files`` reads a Markdown file with its front matter; ``templates`` compiles and renders Jinja. ``registry``
follows the files beside the event loop. It replaces the old snapshot by a new one, or keeps the old one if a file is
broken.

The engine calls ``composer`` for each chat request: ``rules`` finds the terms of the request (what the configuration
says, and what the client may choose of it), and the composer remembers what it has composed by them.
``proxy.core.prompts`` has the part that needs neither files nor templates.
"""
