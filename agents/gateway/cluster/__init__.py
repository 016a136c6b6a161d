"""The routes of a cluster: HTTPRoutes, Services and EndpointSlices, by which any Gateway sends requests to copies."""
