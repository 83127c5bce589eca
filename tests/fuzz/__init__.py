"""Random and mutated requests, headers and streams, through the real application.

Every case is made from a seed and its number alone, so that one that was found can be run again (``--only``). What must
hold: no case ends in an error of ours (500, or a failure that was contained), none hangs, each exchange is settled
once, and memory stays what it was once the bounded tables are full.
"""
