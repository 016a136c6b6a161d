"""The net under every decision: recorded questions, asked again and compared with the recorded answers."""
