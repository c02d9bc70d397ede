"""One managed instance group at a time, and the only room that speaks google-cloud-compute."""
