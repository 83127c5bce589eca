"""Who may send requests.

Keys, teams and the headers of a request come in. A principal with its rights goes out, or a refusal. Records of keys
hold digests only.
"""
