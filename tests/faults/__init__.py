"""Faults that serving engines have had, planted one at a time in front of a real engine.

`proxy` speaks the engine's API and passes everything on, but for what one `Fault` of `table.FAULTS` does to it.
`engine` launches it where the product expects its engine; `matrix` says which verdict each fault has to get.
"""
