package rehearsal

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"testing"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/settleonce/settleonce/internal/doctor"
)

// examined runs doctor on the deployment, with its normal clients. Every check must
// pass, but for the dead-letter policy: the rehearsal's pauses are too short.
func (r *rehearsal) examined(t *testing.T) {
	c := r.cloud
	findings := doctor.Examine(doctor.Gather(t.Context(), doctor.Target{
		Database:         database,
		Subscription:     "projects/" + project + "/subscriptions/" + r.subscription(t, "settle-payout"),
		Function:         "projects/" + project + "/locations/europe-west1/functions/settle-payout",
		SpannerOptions:   c.grpcOptions(c.spanner.GRPC),
		PubSubOptions:    c.grpcOptions(c.pubsub.Host),
		FunctionsOptions: []option.ClientOption{option.WithHTTPClient(c.httpClient())},
	}))
	for _, f := range findings {
		want := doctor.OK
		if f.Check == "dead-letter policy" {
			want = doctor.Warn
		}
		if f.Status != want {
			t.Errorf("%s: %v: %s %s", f.Check, f.Status, f.Figures, f.Remedy)
		}
	}
	t.Logf("%d checks of doctor", len(findings))
}

// httpClient sends the requests of Google's API clients to the project.
func (c *cloud) httpClient() *http.Client {
	return &http.Client{Transport: roundTripper(func(raw *http.Request) (*http.Response, error) {
		raw = raw.Clone(raw.Context())
		raw.Host = raw.URL.Host
		raw.URL.Scheme, raw.URL.Host = "http", net.JoinHostPort("127.0.0.1", c.port)
		return http.DefaultTransport.RoundTrip(raw)
	})}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// grpcOptions make a gRPC client of an emulator that also sees the features added in
// cloud.
func (c *cloud) grpcOptions(address string) []option.ClientOption {
	return []option.ClientOption{
		option.WithEndpoint(address), option.WithoutAuthentication(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())),
		option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(c.addFeatures)),
	}
}

func (c *cloud) addFeatures(
	ctx context.Context, method string, question, answer any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption,
) error {
	if policy, is := answer.(*iampb.Policy); is { // the emulators have none
		return c.kept(c.policies, question.(*iampb.GetIamPolicyRequest).GetResource(), policy)
	}
	if err := invoke(ctx, method, question, answer, conn, options...); err != nil {
		return err
	}
	switch answer := answer.(type) {
	case *pubsubpb.Subscription:
		return c.kept(c.docs, answer.GetName(), answer)
	case *pubsubpb.Topic:
		return c.kept(c.docs, answer.GetName(), answer)
	case *databasepb.GetDatabaseDdlResponse:
		c.mu.Lock()
		defer c.mu.Unlock()
		answer.Statements = append(answer.Statements, c.roles[question.(*databasepb.GetDatabaseDdlRequest).GetDatabase()]...)
	}
	return nil
}

// kept merges the fields that cloud stores into a resource of Pub/Sub.
func (c *cloud) kept(in map[key]doc, name string, resource proto.Message) error {
	c.mu.Lock()
	text, err := json.Marshal(in[key{"pubsub", name}])
	c.mu.Unlock()
	if err != nil {
		return err
	}
	added := resource.ProtoReflect().New().Interface()
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, added); err != nil {
		return err
	}
	proto.Merge(resource, added)
	return nil
}
