"""The allow-list of a node: the images and commands of users that it starts. The control plane cannot change it."""
