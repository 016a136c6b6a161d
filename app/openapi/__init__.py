"""The API's contract as an OpenAPI document."""
