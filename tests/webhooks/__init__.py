"""Webhooks: a real server posts to receivers that take, hang, lie, redirect, and come back."""
