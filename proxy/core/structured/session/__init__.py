"""The state that is kept between the requests of a conversation.

The input is the outcome of a request and the texts that its client has sent. The output is the kept state, as values or
as the bytes of a store. All of it is bounded, and texts are never logged.
"""
