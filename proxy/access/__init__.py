"""Decides who may send requests.

The input is keys, teams and the headers of a request. The result is a principal with its rights, or a refusal. Records
of keys hold only digests.
"""
