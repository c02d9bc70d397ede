"""Recorded supply and recorded jobs, replayed in virtual time under real and rival policies."""
