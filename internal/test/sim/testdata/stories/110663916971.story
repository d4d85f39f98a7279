# seed 110663916971: what is stored is wrong: settlement "stl-1": latest send 24h37m19.56s after the first; no send before the first or after resend_not_after
the bank remembers a key for = 24h0m0s
the bank shows a transfer after = 0s
the bank answers a key that it knows with = its transfer
habit of the bank = none
mood of the bank = rejects
the store is = faulty
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
the bank does unlike its mood = false
shown after half lags = 0
#      00:00:00    the bank: rejects
#      00:00:00  instance 1: the send for stl-1 is answered: rejected
#      00:00:00  instance 1: the transaction that records the answer about stl-1 commits
#      00:00:00  instance 1 answers 200 to message stl-1.1: applied
step = wait for several
how many = 1
#      00:00:00  24h36m39.56s pass
instance = instance 1
#   1d 00:36:39  instance 1 reconciles
how a read goes on = is answered
how a commit goes on = commits, the answer is under way
#   1d 00:36:39  instance 1: the transaction that claims stl-1 commits, the answer is under way
how a commit's answer comes = is not answered
#   1d 00:36:39  instance 1: the transaction that claims stl-1 is not answered
how a read goes on = is answered
the end = comes
#   1d 00:36:39  1m5s pass
#   1d 00:37:44  instance 1 reconciles
#   1d 00:37:44  instance 1: the transaction that claims stl-1 commits
#   1d 00:37:44  here it breaks: what is stored is wrong: settlement "stl-1": latest send 24h37m19.56s after the first; no send before the first or after resend_not_after
