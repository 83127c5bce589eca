"""What is kept between the requests of a conversation, and the texts that its client has sent."""
