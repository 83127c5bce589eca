"""Passes the upstream's answer on to the client.

An open answer comes in. The client gets its bytes as they arrive, and the exchange learns what they say. An answer that
another attempt may replace is kept back, and calls of panels by the model are answered on the way.
"""
