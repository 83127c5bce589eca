"""Tools around the proxy that serving never needs: replay, explanation, diagnosis of logs, demonstrations.

Nothing outside of this package imports it. ``proxy.cli`` takes its commands over from here, by one line.
"""

COMMANDS = {
    "try": ("proxy.lab.demo.command:try_", "see on a short conversation what the cache saves"),
    "demo": ("proxy.lab.demo.command", "show on sample sessions what the proxy saves"),
    "replay": ("proxy.lab.replay.command", "replay recorded sessions, and compare what they cost"),
    "explain": ("proxy.lab.replay.explain", "show the layout of one recorded request, and why"),
    "doctor": ("proxy.lab.doctor.report", "find out in logs why caches missed, and what that costs"),
}
