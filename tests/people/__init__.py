"""People who sign in: at npm's `oidc-provider`, and by tokens that are not what they should be."""
