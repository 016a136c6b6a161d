"""Charts of time, drawn as SVG by the server."""
