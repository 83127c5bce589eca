"""The operator's prompts around the pure core: registry, templates, and composing.

``sources`` reads Markdown files with front matter, and makes a snapshot of the folders, plugins and fragments, which
never changes and has a version; its registry follows the files beside the event loop. It replaces the old snapshot by a
new one, or keeps the old one if a file is broken. ``templates`` compiles and renders Jinja, within the bounds of
``language``.

The engine calls ``composer`` for each chat request. It finds the terms of the request (what the configuration says, and
what the client may choose of it), and remembers what it has composed by them. ``proxy.core.prompts`` has the part that
needs neither files nor templates.
"""
