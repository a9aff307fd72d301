"""Servers that the embedded stack brings along, so that trying gatekeeper needs no system package."""
