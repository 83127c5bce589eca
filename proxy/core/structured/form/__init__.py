"""Reads the section ``stratiform`` of a request.

JSON comes in; typed and checked values go out, or ``InvalidRequest`` with the field that is wrong. This package never
looks up what a request names by its digest.
"""
