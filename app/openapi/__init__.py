"""The API's contract, told to machines."""
