"""People who sign in at a provider (OpenID Connect): what it says of them, and which token that gives them."""
