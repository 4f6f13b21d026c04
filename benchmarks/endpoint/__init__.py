"""What measures an endpoint: servers in processes of their own, clients that check every answer, and misbehaviour."""
