"""The dashboards, from Python to JSON. It is no part of the product."""
