"""What the endpoints of `alphafair_client.api` do."""
