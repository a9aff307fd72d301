"""What gatekeeper knows: frozen types and pure functions, no I/O."""
