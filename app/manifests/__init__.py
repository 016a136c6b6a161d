"""From bytes to validated manifests, with every fault named at once, without database or web server."""
