"""Retrieval and reasoning over context: tasks whose answer only the context holds, written from a seed.

One module per family; each is a pure function that writes a draft, `items` turns drafts into token ids of the right
length, `retrieval` asks them.
"""
