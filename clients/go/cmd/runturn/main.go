// Command runturn runs one turn and prints what happens: runturn TARGET AGENT TEXT.
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	runtimev1 "turnwire.dev/go/turnwire/api/runtime/v1"
)

func main() {
	if len(os.Args) != 4 {
		log.Fatalf("usage: %s TARGET AGENT TEXT", os.Args[0])
	}
	if err := run(context.Background(), os.Stdout, os.Args[1], os.Args[2], os.Args[3]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, target, agent, text string) error {
	// Servers accept a ping every 10 s, which is also the least that grpc-go sends.
	alive := keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 10 * time.Second}
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithKeepaliveParams(alive))
	if err != nil {
		return err
	}
	defer conn.Close()
	input := &runtimev1.Input{Parts: []*runtimev1.Part{{Content: &runtimev1.Part_Text{Text: &runtimev1.TextContent{Text: text}}}}}
	stream, err := runtimev1.NewTurnServiceClient(conn).RunTurn(ctx, &runtimev1.RunTurnRequest{
		RequestId: requestID(),
		Spec:      &runtimev1.TurnSpec{Agent: agent, NewThread: &runtimev1.NewThread{}, Work: &runtimev1.TurnSpec_Input{Input: input}},
	})
	for err == nil {
		var response *runtimev1.RunTurnResponse
		if response, err = stream.Recv(); err == nil {
			for _, event := range response.GetEvents() {
				tell(out, event)
			}
		}
	}
	if err == io.EOF {
		return nil
	}
	return err
}

// tell prints one event; events of kinds it does not know print nothing.
func tell(out io.Writer, event *runtimev1.TurnEvent) {
	switch e := event.GetEvent().(type) {
	case *runtimev1.TurnEvent_Llm:
		fmt.Fprint(out, e.Llm.GetTextDelta().GetText())
	case *runtimev1.TurnEvent_ToolCallFinished:
		fmt.Fprintf(out, "[%s: %s]\n", e.ToolCallFinished.GetToolName(), e.ToolCallFinished.GetContent())
	case *runtimev1.TurnEvent_TurnFinished:
		fmt.Fprintf(out, "\n%s %s\n", event.GetTurn(), e.TurnFinished.GetState())
	}
}

// requestID mints the key that makes a repeated request join the same turn: a random UUID.
func requestID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: the program ends when the system has no randomness
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
