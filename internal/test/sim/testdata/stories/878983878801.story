# seed 878983878801: what is stored is wrong: settlement "stl-1": latest send 24h37m39.56s after the first; no send before the first or after resend_not_after
the bank remembers a key for = 24h0m0s
the bank shows a transfer after = 0s
the bank answers a key that it knows with = its transfer
habit of the bank = none
mood of the bank = none
the store is = sound
the bank in the end = honest
everything is watched to the end = true
ack deadline = 2m0s
#      00:00:00  the bank remembers a key for 24h0m0s and shows a transfer after 0s; Pub/Sub waits 2m0s for an answer
more instances at first = 1
clock of an instance = 0s
configuration of an instance = as it should be
#      00:00:00  instance 1 starts, its clock is right
clock of an instance = 0s
configuration of an instance = as it should be
#      00:00:00  instance 2 starts, its clock is right
step = push and finish
what is published = a new payout
the new payout is = plain
its settlement ID = stl-1
#      00:00:00  message stl-1.1 is published: a new payout, plain
instance = instance 1
#      00:00:00  message stl-1.1 is pushed to instance 1, attempt 1
#      00:00:00  instance 1: the transaction that settles stl-1 commits
what the bank makes of it = executes
shown after half lags = 0
#      00:00:00    the bank: executes
#      00:00:00  instance 1: the send for stl-1 is answered: accepted
#      00:00:00  instance 1: the transaction that records the answer about stl-1 commits
#      00:00:00  instance 1 answers 200 to message stl-1.1: applied
step = wait for several
how many = 1
#      00:00:00  20s pass
instance = instance 1
#      00:00:20  instance 1 reconciles
#      00:00:20  instance 1: the transaction that claims stl-1 commits
how a question goes on = is answered
#      00:00:20  instance 1: the question about stl-1 is answered
#      00:00:20    it says confirmed
#      00:00:20  instance 1: the transaction that records the answer about stl-1 commits
step = wait for the next
#      00:00:20  24h36m39.56s pass
instance = instance 1
#   1d 00:36:59  instance 1 reconciles
step = go on
call = due
step = go on
call = change stl-1
#   1d 00:36:59  instance 1: the transaction that claims stl-1 commits
step = wait for several
how many = 1
#   1d 00:36:59  1m5s pass
#   1d 00:37:09  instance 1: the question about stl-1 has used up its time
instance = instance 1
#   1d 00:38:04  instance 1 reconciles
#   1d 00:38:04  instance 1: the transaction that records the answer about stl-1 fails: context deadline exceeded
#   1d 00:38:04  instance 1: the transaction that claims stl-1 commits
#   1d 00:38:04  here it breaks: what is stored is wrong: settlement "stl-1": latest send 24h37m39.56s after the first; no send before the first or after resend_not_after
