"""From a change in a repository's serving manifests to changes that can be gated."""
