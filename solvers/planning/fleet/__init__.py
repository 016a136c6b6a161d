"""What stands on each GPU and node, what is free there, and which shapes a service may have: asked by all planners."""
