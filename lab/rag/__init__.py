"""Plans for a service that answers with retrieved passages: four recorded days of requests, planned in four ways.

Requests come from RAGPulse, times of iterations from splitwise's measurements and aiconfigurator's operators.
"""
